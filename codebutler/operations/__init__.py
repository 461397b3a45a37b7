"""Operating an installation: doctor, service, demo."""
