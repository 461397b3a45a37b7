// What a person has chosen and typed in the interactive elements of one message, modal or home.

export class Form {
  /** `context` says where it is, as the workspace's own endpoints expect it. With a `key` the answers outlive the page
   * in this tab, until they are deleted. */
  constructor(context, key = "") {
    Object.assign(this, { context, key });
    this.values = JSON.parse((key && sessionStorage.getItem(key)) || "{}");
  }

  /** The answer to one element so far; undefined if nobody has touched it. */
  get(block, element) {
    return this.values[block.block_id]?.[element.action_id];
  }

  set(block, element, value) {
    (this.values[block.block_id] ||= {})[element.action_id] = value;
    if (this.key) sessionStorage.setItem(this.key, JSON.stringify(this.values));
  }

  forget() {
    if (this.key) sessionStorage.removeItem(this.key);
  }
}
