"""What the author of a scheduler plugin imports: extension points, Status, cluster events, the plugin handle."""
