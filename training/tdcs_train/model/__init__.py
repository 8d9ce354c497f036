"""Models as graphs of layers: tracing by torch.fx, measuring each layer, cutting into stages."""
