"""`make experiment`: the configurations of the paper, live on the local cluster, and what was predicted of them."""
