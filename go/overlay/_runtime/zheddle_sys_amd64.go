package runtime

const (
	heddlePrctl = 157
	heddlePpoll = 271
)
