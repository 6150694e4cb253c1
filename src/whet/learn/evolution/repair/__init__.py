"""One weak part of an agent repaired by what people said of it."""
