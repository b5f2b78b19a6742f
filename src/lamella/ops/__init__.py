"""The operator library: the text of every operator, and the code that finds, binds, infers and evaluates one."""
