"""TDCS as it is installed, and uninstalled: chart, certificates, network, rights, bills of materials, autoscaling."""
