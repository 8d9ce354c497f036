"""`tdcs status`: cache clusters, datasets, preloads and jobs at a glance."""
