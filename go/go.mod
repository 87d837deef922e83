module github.com/heddle-sched/heddle/go

go 1.25
