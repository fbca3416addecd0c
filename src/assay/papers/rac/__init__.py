"""Return-aware context: cooperative learners that share nothing but the reward.

"In-Context Fully Decentralized Cooperative Multi-Agent Reinforcement Learning", Li, Bao and Gao,
NeurIPS 2025.
"""
