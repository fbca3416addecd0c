"""Steps-to-execution as the eviction order of other engines; none of them is needed to import.

| module | engine | what it replaces |
| --- | --- | --- |
| `sglang` | SGLang >= 0.5.23 | the order of its radix tree, on device and host |
| `vllm` | vLLM with CPU offloading | the order of its host tier; the device has no hook |
| `lmcache` | LMCache >= 0.5.6 | the order of its local store |

The policies are tested against the engines' interfaces. Serving with them needs the engine itself
and a GPU, and was not tried.
"""
