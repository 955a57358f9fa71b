//! Circles of imports between the files of a crate, and between its folders. Files that import each
//! other can be understood only together, so a circle has at most [`FILES_MAX`] files. Folders have
//! none: no folder imports what imports it. Files beside the folders may be imported by all.
//!
//! 1. Parse each file of `crates/*/src`, without its tests.
//! 2. Collect the paths that lead to another module: imports, and paths in code that begin with
//!    `crate`, `super`, `self` or a child module.
//! 3. Resolve each path to the file that defines its item. A re-export is followed, and is no
//!    import of the file that contains it. A parent may name its children for that purpose.
//! 4. Collect the files that each file reaches through imports. Files that reach each other form a
//!    circle. A crate has about a hundred files, so that the quadratic way is quick.
//!
//! Method calls contain no path, so that an `impl` block of a type in another file counts by the
//! path of the type. Paths inside macro calls are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use crate::files::{list, name, read, rust_files, verdict};

/// Maximum number of files in a circle.
const FILES_MAX: usize = 3;

/// Checks the files of every crate.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut complaints = Vec::new();
    for folder in list(&root.join("crates"))? {
        let source = folder.join("src");
        if !source.is_dir() {
            continue;
        }
        let krate = name(&folder);
        let imports = Imports::of(&files(&source)?);
        let largest = imports.circles().into_iter().max_by_key(Vec::len).unwrap_or_default();
        if largest.len() > FILES_MAX {
            complaints.push(format!(
                "`{krate}` has a circle of {} files that import each other, at most {FILES_MAX}:\n    {}",
                largest.len(),
                largest.join("\n    ")
            ));
        }
        for circle in imports.between_folders().circles() {
            complaints.push(format!(
                "`{krate}` has folders that import each other:\n    {}",
                circle.join("\n    ")
            ));
        }
    }
    verdict(complaints)
}

/// A path from the root of the crate, such as `["read", "Slice"]`.
type ItemPath = Vec<String>;

/// Paths of one file, all from the root of the crate.
#[derive(Debug, Default)]
struct File {
    /// Path of the file below `src`.
    shown: String,
    /// Paths of other files' items.
    used: Vec<ItemPath>,
    /// Names that a `use` brings into the module, with their paths. Other files may reach the item
    /// through this module.
    names: BTreeMap<String, ItemPath>,
    /// Modules with all names re-exported, such as `pub use a::*`.
    globs: Vec<ItemPath>,
    /// Items defined here.
    items: BTreeSet<String>,
}

/// Parses the files below `source`, as [`parse`] does.
fn files(source: &Path) -> Result<BTreeMap<ItemPath, File>, String> {
    let mut texts = Vec::new();
    for path in rust_files(vec![source.to_owned()], &[])? {
        texts.push((path.strip_prefix(source).unwrap_or(&path).to_owned(), read(&path)?));
    }
    parse(&texts)
}

/// Parses files, each with its path below `src`. Test modules are left out. The key is the path of
/// the module.
fn parse(texts: &[(PathBuf, String)]) -> Result<BTreeMap<ItemPath, File>, String> {
    let mut trees = BTreeMap::new();
    for (path, text) in texts {
        let shown = path.display().to_string();
        let tree = syn::parse_file(text).map_err(|error| format!("{shown} could not be parsed: {error}."))?;
        trees.insert(module(path), (shown, tree));
    }
    let modules: BTreeSet<ItemPath> = trees.keys().cloned().collect();
    let mut tests = Vec::new();
    let mut files = BTreeMap::new();
    for (module, (shown, tree)) in trees {
        let file = File { shown, ..File::default() };
        let mut reader = Reader { modules: &modules, module: module.clone(), file, tests: Vec::new() };
        reader.visit_file(&tree);
        tests.append(&mut reader.tests);
        files.insert(module, reader.file);
    }
    files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    Ok(files)
}

/// Returns the path of a file's module.
fn module(path: &Path) -> ItemPath {
    let mut names: ItemPath =
        path.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if names.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        names.pop();
    }
    names
}

/// Collects the paths of one file.
struct Reader<'a> {
    modules: &'a BTreeSet<ItemPath>,
    module: ItemPath,
    file: File,
    /// Modules that exist for tests only.
    tests: Vec<ItemPath>,
}

impl Reader<'_> {
    /// Returns the path from the root, or `None` if it leads to another crate or to this file.
    fn resolved(&self, names: &[String]) -> Option<ItemPath> {
        let first = names.first()?;
        let mut base = self.module.clone();
        let rest = match first.as_str() {
            "crate" => {
                base.clear();
                &names[1..]
            }
            "self" => &names[1..],
            "super" => {
                let ups = names.iter().take_while(|name| *name == "super").count();
                base.truncate(base.len().checked_sub(ups)?);
                &names[ups..]
            }
            _ => {
                let child: ItemPath = base.iter().chain([first]).cloned().collect();
                if !self.modules.contains(&child) {
                    return None;
                }
                names
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }

    fn import(&mut self, before: &mut ItemPath, tree: &syn::UseTree, is_public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(before, &path.tree, is_public);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(before, tree, is_public));
            }
            syn::UseTree::Glob(_) => {
                let Some(names) = self.resolved(before) else { return };
                if !is_public {
                    self.file.used.push(names.clone());
                }
                self.file.globs.push(names);
            }
            syn::UseTree::Name(found) => {
                let name = found.ident.to_string();
                self.import_name(before, name.clone(), name, is_public);
            }
            syn::UseTree::Rename(found) => {
                self.import_name(before, found.ident.to_string(), found.rename.to_string(), is_public);
            }
        }
    }

    fn import_name(&mut self, before: &[String], name: String, shown: String, is_public: bool) {
        let is_self = name == "self";
        let names: ItemPath = before.iter().cloned().chain((!is_self).then_some(name)).collect();
        let shown = if is_self { before.last().cloned().unwrap_or_default() } else { shown };
        let Some(names) = self.resolved(&names) else { return };
        if !is_public {
            self.file.used.push(names.clone());
        }
        self.file.names.insert(shown, names);
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg")
            && list.tokens.to_string().split(['(', ',', ')', ' ']).any(|word| word == "test")
    })
}

impl<'tree> Visit<'tree> for Reader<'_> {
    fn visit_item(&mut self, item: &'tree syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            syn::Item::Impl(item) => (&item.attrs, None),
            syn::Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            syn::Item::Mod(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Use(item) => (&item.attrs, None),
            _ => return visit::visit_item(self, item),
        };
        let name = name.map(ToString::to_string);
        if is_test(attributes) {
            if let (syn::Item::Mod(_), Some(name)) = (item, name) {
                self.tests.push(self.module.iter().cloned().chain([name]).collect());
            }
            return;
        }
        if !matches!(item, syn::Item::Mod(_)) {
            self.file.items.extend(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'tree syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'tree syn::ItemUse) {
        let is_public = !matches!(item.vis, syn::Visibility::Inherited);
        self.import(&mut Vec::new(), &item.tree, is_public);
    }

    fn visit_path(&mut self, path: &'tree syn::Path) {
        if path.segments.len() > 1 {
            let names: ItemPath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            let names = self.resolved(&names);
            self.file.used.extend(names);
        }
        visit::visit_path(self, path);
    }
}

/// Returns the module of the file that defines the item of a path.
fn defining(files: &BTreeMap<ItemPath, File>, names: &[String], depth: usize) -> Option<ItemPath> {
    let module = (0..=names.len()).rev().map(|end| &names[..end]).find(|start| files.contains_key(*start))?;
    let file = &files[module];
    let Some(item) = names.get(module.len()) else { return Some(module.to_vec()) };
    if file.items.contains(item) || depth == 0 {
        return Some(module.to_vec());
    }
    if let Some(path) = file.names.get(item) {
        return defining(files, path, depth - 1);
    }
    for glob in &file.globs {
        let path: ItemPath = glob.iter().chain([item]).cloned().collect();
        let found = defining(files, &path, depth - 1);
        if let Some(found) = found.filter(|found| files[found].items.contains(item)) {
            return Some(found);
        }
    }
    Some(module.to_vec())
}

/// Imports between files or folders.
struct Imports {
    names: Vec<String>,
    /// Imports of each of them, by index.
    edges: Vec<BTreeSet<usize>>,
}

impl Imports {
    fn of(files: &BTreeMap<ItemPath, File>) -> Imports {
        /// Maximum number of re-exports on the way to an item.
        const DEPTH_MAX: usize = 8;
        let indexes: BTreeMap<&ItemPath, usize> =
            files.keys().enumerate().map(|(index, names)| (names, index)).collect();
        let edges = files
            .iter()
            .map(|(module, file)| {
                let found = file.used.iter().filter_map(|names| defining(files, names, DEPTH_MAX));
                found.filter(|other| other != module).map(|other| indexes[&other]).collect()
            })
            .collect();
        Imports { names: files.values().map(|file| file.shown.clone()).collect(), edges }
    }

    /// Returns the imports between the folders of the crate, without the files beside them.
    fn between_folders(&self) -> Imports {
        let folder = |shown: &String| shown.split_once('/').map(|(folder, _)| folder.to_owned());
        let folders: Vec<Option<String>> = self.names.iter().map(folder).collect();
        let names: Vec<String> =
            folders.iter().flatten().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let index = |file: usize| folders[file].as_ref().and_then(|own| names.binary_search(own).ok());
        let mut edges = vec![BTreeSet::new(); names.len()];
        for (file, others) in self.edges.iter().enumerate() {
            let Some(from) = index(file) else { continue };
            edges[from].extend(others.iter().filter_map(|other| index(*other)).filter(|to| *to != from));
        }
        Imports { names, edges }
    }

    /// Returns the circles. Each has a line for each member with those of the circle that it
    /// imports.
    fn circles(&self) -> Vec<Vec<String>> {
        let found = components(&self.edges).into_iter().filter(|component| component.len() > 1);
        let lines = found.map(|component| {
            let line = |&index: &usize| {
                let others = self.edges[index].iter().filter(|other| component.contains(other));
                let others: Vec<&str> = others.map(|&other| &*self.names[other]).collect();
                format!("{} imports {}", self.names[index], others.join(", "))
            };
            component.iter().map(line).collect()
        });
        lines.collect()
    }
}

/// Returns the strongly connected components of a graph, each in the order of its nodes.
fn components(edges: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..edges.len()).map(|node| reachable(edges, node)).collect();
    let mut found = Vec::new();
    for (node, others) in reached.iter().enumerate() {
        let component: Vec<usize> =
            others.iter().copied().filter(|&other| reached[other].contains(&node)).collect();
        // Each of its nodes has the same component. Take that of the first one.
        if component.first() == Some(&node) {
            found.push(component);
        }
    }
    found
}

/// Returns the nodes that a node reaches, with itself.
fn reachable(edges: &[BTreeSet<usize>], node: usize) -> BTreeSet<usize> {
    let (mut reached, mut open) = (BTreeSet::from([node]), vec![node]);
    while let Some(next) = open.pop() {
        open.extend(edges[next].iter().filter(|&&other| reached.insert(other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &[(&str, &str)], expected: &[&[&str]]) {
        let texts: Vec<_> =
            texts.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        let found = Imports::of(&parse(&texts).expect("the texts are Rust")).circles();
        assert_eq!(found, expected);
    }

    #[test]
    fn folders_that_import_each_other_form_a_circle() {
        let texts = [
            ("lib.rs", "mod a; mod b; mod c; use a::x::X;"),
            ("a/mod.rs", "pub mod x; pub mod y;"),
            ("a/x.rs", "use crate::b::u::U; pub struct X(U, crate::c::C);"),
            ("a/y.rs", "pub struct Y;"),
            ("b/mod.rs", "pub mod u; pub mod v;"),
            ("b/u.rs", "pub struct U;"),
            ("b/v.rs", "pub struct V(crate::a::y::Y);"),
            ("c.rs", "pub struct C(crate::b::u::U);"),
        ];
        let texts: Vec<_> = texts.map(|(path, text)| (PathBuf::from(path), text.to_owned())).into();
        let imports = Imports::of(&parse(&texts).expect("the texts are Rust"));
        assert_eq!(imports.circles(), Vec::<Vec<String>>::new());
        assert_eq!(imports.between_folders().circles(), [["a imports b", "b imports a"]]);
    }

    #[test]
    fn files_that_import_each_other_form_a_circle() {
        let (a, b) = (
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f(_: crate::a::A) {}"),
        );
        check(&[("lib.rs", "mod a; mod b;"), a, b], &[&["a.rs imports b.rs", "b.rs imports a.rs"]]);
        check(&[("lib.rs", "mod a; mod b;"), a, ("b.rs", "pub struct B;")], &[]);
    }

    #[test]
    fn reexport_leads_to_the_file_with_the_item() {
        let lib = ("lib.rs", "mod a; mod b; mod c; pub use a::A; pub use c::*;");
        let a = ("a.rs", "pub struct A; use crate::C;");
        check(&[lib, a, ("b.rs", "use crate::A;"), ("c.rs", "pub struct C;")], &[]);
        check(
            &[lib, a, ("b.rs", ""), ("c.rs", "pub struct C(crate::A);")],
            &[&["a.rs imports c.rs", "c.rs imports a.rs"]],
        );
    }

    #[test]
    fn test_modules_are_left_out() {
        let a = ("a.rs", "#[cfg(test)] mod tests; pub struct A; #[cfg(test)] use crate::b::B;");
        let b = ("b.rs", "use crate::a::A; pub struct B;");
        check(&[("lib.rs", "mod a; mod b;"), a, b, ("a/tests.rs", "use crate::b::B; use super::A;")], &[]);
    }

    #[test]
    fn child_and_parent_form_a_circle_if_both_use_items() {
        let lib = ("lib.rs", "mod a;");
        check(&[lib, ("a/mod.rs", "mod b; use b::B; pub struct A;"), ("a/b.rs", "pub struct B;")], &[]);
        let child = ("a/b.rs", "use super::A; pub struct B;");
        check(
            &[lib, ("a/mod.rs", "mod b; use b::B; pub struct A;"), child],
            &[&["a/mod.rs imports a/b.rs", "a/b.rs imports a/mod.rs"]],
        );
        check(&[lib, ("a/mod.rs", "mod b; pub(crate) use b::B; pub struct A;"), child], &[]);
    }
}
