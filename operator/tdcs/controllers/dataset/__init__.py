"""The Dataset controller: mount the source, choose nodes, load the blocks, give pods a claim."""
