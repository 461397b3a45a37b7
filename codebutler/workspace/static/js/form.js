// What a person has chosen and typed in the interactive elements of one message, modal or home.

export class Form {
  /** `context` says where it is, in the words of the workspace's own endpoints. */
  constructor(context) {
    this.context = context;
    this.values = {};
  }

  /** The answer to one element so far; undefined when nobody has touched it. */
  get(block, element) {
    return this.values[block.block_id]?.[element.action_id];
  }

  set(block, element, value) {
    (this.values[block.block_id] ||= {})[element.action_id] = value;
  }
}
