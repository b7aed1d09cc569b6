module coterie/workload

go 1.24
