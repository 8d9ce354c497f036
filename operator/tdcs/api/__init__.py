"""The custom resources: models, names and the CRD generator."""
