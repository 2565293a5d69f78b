"""What the tests of several systems share: README.md says what is where."""
