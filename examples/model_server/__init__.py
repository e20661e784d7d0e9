"""A model server on this machine: it speaks OpenAI's and Anthropic's protocols and answers by rules, not by a model.

`python -m examples.model_server` starts it and prints how to use it. The tests use it too, with their own answers.
"""
