"""What tests share: generators of programs, tables of cases, judges, and ways to run what is tested."""
