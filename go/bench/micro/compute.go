package main

import (
	"encoding/json"
	"slices"
)

// loop is arithmetic without a call: the case that is hardest to preempt without signals.
func loop(id uint64) uint64 {
	const steps = 1_300_000
	state := seeded(id)
	for range steps {
		state = next(state)
	}
	return state
}

func sortNumbers(id uint64) uint64 {
	const numbers = 96_000
	list, state := make([]uint64, numbers), seeded(id)
	for i := range list {
		state = next(state)
		list[i] = state
	}
	slices.Sort(list)
	var sum uint64
	for i, number := range list {
		sum += uint64(i) * number
	}
	return sum
}

// matrixSize is the number of rows and columns.
const matrixSize = 768

var left, right = matrix(1), matrix(2)

func matrix(seed uint64) (m [matrixSize][matrixSize]float64) {
	state := seeded(seed)
	for row := range m {
		for column := range m[row] {
			state = next(state)
			// Whole numbers, so that no sum is rounded.
			m[row][column] = float64(state % 16)
		}
	}
	return m
}

// matrixRows multiplies some rows of one matrix by another.
func matrixRows(id uint64) (sum uint64) {
	const rows = matrixSize / 64 // of which there are 64 items
	for row := id * rows; row < (id+1)*rows; row++ {
		var product [matrixSize]float64
		for k, factor := range left[row] {
			for column := range product {
				product[column] += factor * right[k][column]
			}
		}
		for column, value := range product {
			sum += uint64(value) * uint64(column+1)
		}
	}
	return sum
}

// mapEntries grows a map, and looks up twice as many keys as it has.
func mapEntries(id uint64) (sum uint64) {
	const entries = 20_000
	table, state := make(map[uint64]uint64), seeded(id)
	for i := range uint64(entries) {
		state = next(state)
		table[state%(2*entries)] = i
	}
	for key := range uint64(2 * entries) {
		if value, found := table[key]; found {
			sum += key ^ value
		}
	}
	return sum
}

type record struct {
	ID    uint64            `json:"id"`
	Name  string            `json:"name"`
	Score float64           `json:"score"`
	Tags  map[string]string `json:"tags"`
}

// jsonRecords writes and reads back records: short-lived objects, so that the collector runs too.
func jsonRecords(id uint64) (sum uint64) {
	const records = 2000
	state := seeded(id)
	for range records {
		state = next(state)
		sum += jsonRecord(state)
	}
	return sum
}

func jsonRecord(number uint64) (sum uint64) {
	before := record{
		number, "thread " + string(rune('a'+number%26)), float64(number % 1000),
		map[string]string{"warp": "heddle", "weft": "shuttle"},
	}
	var after record
	text, err := json.Marshal(before)
	if err == nil {
		err = json.Unmarshal(text, &after)
	}
	if err != nil {
		return 0
	}
	return after.ID + uint64(len(text)) + uint64(after.Score) + uint64(len(after.Tags["weft"]))
}
