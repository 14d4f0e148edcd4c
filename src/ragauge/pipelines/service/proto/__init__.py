"""The wire format of the retrieval service: `ragauge.proto` and what protoc makes of it."""
