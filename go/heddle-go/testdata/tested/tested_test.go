package tested

import "testing"

func TestTag(t *testing.T) {
	if !hasTag {
		t.Fatal("built without tag heddle")
	}
}
