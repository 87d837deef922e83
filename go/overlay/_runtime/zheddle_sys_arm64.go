package runtime

const (
	heddlePrctl = 167
	heddlePpoll = 73
)
