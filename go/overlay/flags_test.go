package overlay

import (
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTagsAreMerged(t *testing.T) {
	for _, test := range []struct{ goflags, line, want string }{
		{"", "build", "heddle |"},
		{"", "build -tags=x .", "x,heddle | ."},
		{"", "build --tags x,y -v ./...", "x,y,heddle | -v ./..."},
		{"", "build -tags heddle .", "heddle | ."},
		{"", "build -tags=a -tags=b .", "b,heddle | ."},
		{"-tags=x", "build .", "x,heddle | ."},
		{"-v '-tags=x y'", "build .", "x,y,heddle | ."},
		{`"--tags=x" -v`, "build .", "x,heddle | ."},
		{"-tags=x", "build -tags=y .", "y,heddle | ."},
		{"-tags=x", "build -tags= .", "heddle | ."},
		// Values that look like flags or packages.
		{"", "build -o -tags -tags=x .", "x,heddle | -o -tags ."},
		{"", "build -ldflags -s -tags x .", "x,heddle | -ldflags -s ."},
		{"", "build -race -o out -tags x .", "x,heddle | -race -o out ."},
		{"", "build -o", "heddle | -o"},
		{"", "list -deps -f {{.Name}} -tags x .", "x,heddle | -deps -f {{.Name}} ."},
		{"", "vet -c 3 -tags x .", "x,heddle | -c 3 ."},
		{"", "test -c -tags x .", "x,heddle | -c ."},
		// Words that are not go's.
		{"", "run . -tags=x", "heddle | . -tags=x"},
		{"", "run -tags=a . -tags=x -overlay=y", "a,heddle | . -tags=x -overlay=y"},
		{"", "build -- -tags=x", "heddle | -- -tags=x"},
		{"", "build . -tags=x", "heddle | . -tags=x"},
		{"", "test ./... -args -tags", "heddle | ./... -args -tags"},
		{"", "test ./... -args -tags=x -overlay=y", "heddle | ./... -args -tags=x -overlay=y"},
		{"", "test . -- -tags=x", "heddle | . -- -tags=x"},
		// go test looks for its flags behind packages too.
		{"", "test ./a ./b -tags=x", "x,heddle | ./a ./b"},
		{"", "test . -mine -tags=x", "x,heddle | . -mine"},
		{"", "test . -mine value -tags=x", "x,heddle | . -mine value"},
		{"", "test . -run=X word -tags=x", "heddle | . -run=X word -tags=x"},
		{"", "test -test.run X -tags=x .", "x,heddle | -test.run X ."},
	} {
		line := strings.Fields(test.line)
		got, err := withOverlay(line[0], line[1:], "/o.json", test.goflags)
		tags, rest, _ := strings.Cut(test.want, " |")
		want := append([]string{"-overlay=/o.json", "-tags=" + tags}, strings.Fields(rest)...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("GOFLAGS=%q go %s: %q, %v; want %q", test.goflags, test.line, got, err, want)
		}
	}
}

func TestSecondOverlayIsRefused(t *testing.T) {
	for _, test := range []struct{ goflags, line, says string }{
		{"", "build -overlay=o.json .", "-overlay: cmd/go takes one overlay"},
		{"", "build -v --overlay o.json .", "-overlay: cmd/go takes one overlay"},
		{"", "test . -overlay=o.json", "-overlay: cmd/go takes one overlay"},
		{"-v -overlay=o.json", "build .", "GOFLAGS: -overlay: cmd/go takes one overlay"},
	} {
		line := strings.Fields(test.line)
		_, err := withOverlay(line[0], line[1:], "/o.json", test.goflags)
		if err == nil || !strings.HasPrefix(err.Error(), test.says) {
			t.Errorf("GOFLAGS=%q go %s: %v", test.goflags, test.line, err)
		}
	}
}

func TestDashCIsTakenOnlyFromTheFront(t *testing.T) {
	for _, test := range []struct{ line, folder, rest string }{
		{"-C dir -v .", "dir", "-v ."},
		{"--C=dir .", "dir", "."},
		{"-v -C dir .", "", "-v -C dir ."},
		{"-C", "", "-C"},
		{"", "", ""},
	} {
		folder, rest := TakeFolder(strings.Fields(test.line))
		if folder != test.folder || strings.Join(rest, " ") != test.rest {
			t.Errorf("%s: %q, %q", test.line, folder, rest)
		}
	}
}

// The table agrees with go's own help on which flags take a value.
func TestValuedFlagsMatchTheHelpOfGo(t *testing.T) {
	line := regexp.MustCompile(`(?m)^\t-([a-zA-Z]+)( \S.*)?$`)
	for _, topic := range []string{"build", "testflag", "test"} {
		help, err := exec.Command("go", "help", topic).Output()
		if err != nil {
			t.Fatal(err)
		}
		found := line.FindAllStringSubmatch(string(help), -1)
		if len(found) < 4 {
			t.Fatalf("go help %s: has its format changed?\n%s", topic, help)
		}
		for _, f := range found {
			if takes := f[2] != "" && f[1] != "args"; takes != slices.Contains(valued, f[1]) {
				t.Errorf("go help %s: %q", topic, f[0])
			}
		}
	}
}

func TestFlagsWithSpacesAreRefused(t *testing.T) {
	made := Overlay{Root: "/go", Toolchain: Toolchain{Root: "/go", ModCache: "/mod"}, JSON: "/my cache/o.json"}
	if _, err := made.Flags(); err == nil || !strings.Contains(err.Error(), "HEDDLE_GO_CACHE") {
		t.Error(err)
	}
}

func TestFlagsAreRefusedForTheModuleCache(t *testing.T) {
	made := Overlay{Root: "/tree", Toolchain: Toolchain{Root: "/mod/go", Version: "go1.99.0"}, JSON: "/o.json"}
	if _, err := made.Flags(); err == nil || !strings.Contains(err.Error(), "go1.99.0 is in the module cache") {
		t.Error(err)
	}
}
