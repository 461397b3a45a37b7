"""The built-in agent: our own loop over any service that speaks OpenAI's chat completions."""
