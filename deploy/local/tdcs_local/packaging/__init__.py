"""What a release consists of next to the images: the chart, its OCI layout, the plugin of kubectl, the notes."""
