"""One room per paper."""
