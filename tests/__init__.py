"""The tests of Lamella."""
