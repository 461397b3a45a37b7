"""Looking after an installation: doctor, service, demo."""
