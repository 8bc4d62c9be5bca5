"""`make test-matrix`: what is supported is tested, and the page says what was tested when."""
