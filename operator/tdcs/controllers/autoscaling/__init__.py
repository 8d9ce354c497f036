"""Figures for autoscalers: KEDA's protocol for scalers outside of it."""
