"""Resource claim controller: claims of pods from templates, and the release of claims that no pod uses."""
