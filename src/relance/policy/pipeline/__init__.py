"""From a policy to what is done: facts, plan, run, history."""
