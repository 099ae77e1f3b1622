// Where a part stands that a rerun may move. While Streamlit puts a component into another place, the old element and the
// new one ask for its part in any order; it stands in the one that asked last of those that are still there.

export class Home {
  constructor(root) {
    this.root = root;
    this.parents = []; // who asks for it, the last one last
  }

  /** Puts the part into an element. */
  enter(parent) {
    this.parents = [...this.parents.filter((one) => one !== parent), parent];
    if (this.root.parentElement !== parent) parent.replaceChildren(this.root);
  }

  /** An element is gone. Returns whether it was the last that asked for the part. */
  leave(parent) {
    this.parents = this.parents.filter((one) => one !== parent);
    const next = this.parents.at(-1);
    if (next && this.root.parentElement === parent) next.replaceChildren(this.root);
    return !next;
  }
}
