"""One function per operation of the namespace spec: (context, request) -> response."""
