package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every example of the help, in one shell, in the folder of a project with the layout that the
// examples assume.
func TestHelpExamplesRun(t *testing.T) {
	_, examples, _ := strings.Cut(help, "\nExamples:\n")
	examples, _, _ = strings.Cut(examples, "\n\n")
	if strings.Count(examples, "\n") < 4 {
		t.Fatalf("the help has too few examples: %q", examples)
	}
	project := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                    "module example\n\ngo 1.25\n",
		"cmd/server/main.go":        "package main\n\nfunc main() { println(\"served\") }\n",
		"cmd/server/server_test.go": "package main\n\nimport \"testing\"\n\nfunc TestMain(*testing.T) { main() }\n",
		"cmd/server/heddle_test.go": "//go:build heddle && race\n\npackage main\n\nimport \"testing\"\n\n" +
			"func TestBuilt(t *testing.T) { t.Log(\"by heddle-go, with -race\") }\n",
	} {
		path := filepath.Join(project, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "TestMain", "TestServer")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	script := "set -ex; cd " + project + "\n" + strings.Replace(examples, "test -race", "test -v -race", 1)
	r := succeeds(t, []string{"PATH=" + filepath.Dir(tool) + ":" + os.Getenv("PATH")}, "sh", "-c", script)
	if strings.Count(r.errors, "\nserved\n") < 2 || !strings.Contains(r.out, "by heddle-go, with -race") {
		t.Error(r)
	}
}

// The values of HEDDLE_GO in the help are accepted.
func TestHelpKnobsAreAccepted(t *testing.T) {
	program := built(t, "./testdata/knobs")
	knobs := regexp.MustCompile(`(?m)^  ([a-z-]+=[a-z0-9]+) `).FindAllStringSubmatch(help, -1)
	if len(knobs) < 8 {
		t.Fatal(knobs)
	}
	for _, knob := range knobs {
		if r := runWith(t, []string{"HEDDLE_GO=" + knob[1]}, program); r.status != 0 {
			t.Error(knob[1], r)
		}
	}
}
