"""The native agent: our own loop over any service that speaks OpenAI's chat completions."""
