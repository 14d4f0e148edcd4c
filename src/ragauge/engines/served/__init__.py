"""Clients of model servers: requests, replies and streams of an OpenAI-compatible endpoint."""
