package overlay

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// A Mismatch is an edit that does not fit a toolchain.
type Mismatch struct {
	Version, File, Decl, Anchor string
	Found                       int // occurrences of the anchor, -1: the declaration does not exist
}

func (m *Mismatch) Error() string {
	found := fmt.Sprintf("found %d times, want 1", m.Found)
	if m.Found < 0 {
		found = "there is no such declaration"
	}
	const advice = "this version of Heddle is for other sources; see if there is a newer one"
	return fmt.Sprintf("%s is not supported: %s, %s: anchor %q: %s; "+advice,
		m.Version, m.File, m.Decl, strings.TrimSpace(m.Anchor), found)
}

// patched returns the edited files of the standard library in src (GOROOT/src). It writes nothing.
func patched(src, version string, edits []edit) (map[string]string, error) {
	texts := map[string]string{}
	for _, e := range edits {
		text, isKnown := texts[e.file]
		if !isKnown {
			read, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(e.file)))
			if err != nil {
				return nil, fmt.Errorf("%s: the sources of the standard library are needed: %w", version, err)
			}
			text = string(read)
		}
		text, err := apply(text, version, e)
		if err != nil {
			return nil, err
		}
		texts[e.file] = text
	}
	return texts, nil
}

// apply makes one edit in the text of a file.
func apply(text, version string, e edit) (string, error) {
	from, to, err := extent(e.file, text, e.decl)
	if err != nil {
		return "", fmt.Errorf("%s: %w", version, err)
	}
	found := -1
	if to > 0 {
		found = strings.Count(text[from:to], e.anchor)
	}
	if found != 1 {
		return "", &Mismatch{version, e.file, e.decl, e.anchor, found}
	}
	return text[:from] + strings.Replace(text[from:to], e.anchor, e.with, 1) + text[to:], nil
}

// extent returns the declaration's byte range in text; 0, 0 if it does not exist.
func extent(file, text, decl string) (from, to int, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range tree.Decls {
		if name(d) == decl {
			return set.Position(d.Pos()).Offset, set.Position(d.End()).Offset, nil
		}
	}
	return 0, 0, nil
}

// name returns the name by which an edit refers to a declaration.
func name(d ast.Decl) string {
	if f, isFunc := d.(*ast.FuncDecl); isFunc {
		return receiver(f) + f.Name.Name
	}
	g := d.(*ast.GenDecl)
	if g.Tok == token.IMPORT {
		return "import"
	}
	if t, isType := g.Specs[0].(*ast.TypeSpec); isType && len(g.Specs) == 1 {
		return "type " + t.Name.Name
	}
	return ""
}

// receiver returns "T." for a method of T or *T, "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	kind := f.Recv.List[0].Type
	if star, isPointer := kind.(*ast.StarExpr); isPointer {
		kind = star.X
	}
	if t, isPlain := kind.(*ast.Ident); isPlain {
		return t.Name + "."
	}
	return ""
}
