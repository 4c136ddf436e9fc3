"""Recording: timestamps and facts of pods, reconciles and requests, and the spans built from them."""
