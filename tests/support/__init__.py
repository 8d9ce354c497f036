"""What the test tiers share: waiting, processes, a plain-dict Kubernetes client, reports, a control plane."""
