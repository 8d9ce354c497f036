"""Alluxio 2.9.6 as an export of what agents hold: its gRPC services driven with dynamic messages, and its settings."""
