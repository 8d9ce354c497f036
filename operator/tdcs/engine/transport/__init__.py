"""How processes of the cache ask each other: HTTP with roles, signed requests, gRPC from descriptor sets."""
