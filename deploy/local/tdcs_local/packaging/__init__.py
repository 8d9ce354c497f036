"""What a release consists of beside the images: the chart, its OCI layout, the plugin of kubectl, the notes."""
