"""`kubectl coterie`: what people see of GPU placement on their cluster, from the command line.

It reads: the API server by the user's kubeconfig, and through it the extender's read API, which it
reaches by a port-forward that lasts as long as the command. It never writes to the cluster, decides
no placement, and knows neither the extender's nor the plugin's code.
"""
