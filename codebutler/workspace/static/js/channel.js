// A channel's settings: topic, name, members, archiving; and creating a channel.

import { button, dialog, field, tag } from "./dom.js";
import { words } from "./words.js";

/** Ask for a new channel's name and open it. */
export function createChannel(api, model) {
  const name = Object.assign(tag("input", ""), { type: "text", maxLength: 80, required: true });
  const problem = Object.assign(tag("p", "problem-line"), { role: "alert" });
  const form = tag("form", "panel-body", field("Name", name, "Lower-case letters, digits, - and _."), problem, tag("div", "row", Object.assign(button("Create", "primary"), { type: "submit" })));
  const box = dialog("New channel", "panel", form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const { channel } = await api.call("conversations.create", { name: name.value.trim().toLowerCase() });
      await api.call("conversations.invite", { channel: channel.id, users: model.bot.user_id });
      model.addChannel(channel);
      box.close();
      model.openChannel(channel.id);
    } catch (error) {
      problem.textContent = words(error);
    }
  });
}

/** Show a channel and the actions for it. */
export async function aboutChannel(api, model) {
  const channel = model.channels.get(model.channel);
  const problem = Object.assign(tag("p", "problem-line"), { role: "alert" });
  const topic = line("Topic", (text) => act("conversations.setTopic", { topic: text }));
  const name = line("Name", (text) => act("conversations.rename", { name: text }));
  const rest = tag("div", "");
  const body = tag("div", "panel-body", topic.row, name.row, rest);
  const box = dialog(`About #${channel.name}`, "panel", body);
  const act = async (method, params = {}, leaves = false) => {
    try {
      await api.call(method, { channel: channel.id, ...params });
      if (leaves) box.close();
      else await draw();
    } catch (error) {
      problem.textContent = words(error);
    }
  };

  async function draw() {
    const [{ channel: now }, { members }] = await Promise.all([api.call("conversations.info", { channel: channel.id }), api.call("conversations.members", { channel: channel.id })]);
    model.addChannel(now);
    box.querySelector("h2").textContent = `About #${now.name}`;
    topic.show(now.topic.value || "");
    name.show(now.name);
    rest.replaceChildren(
      tag("h3", "", `Members (${members.length})`),
      tag("ul", "members", ...members.map((id) => tag("li", "", model.userName(id)))),
      problem, tag("div", "row", ...actions(now, members)));
  }

  function actions(now, members) {
    if (now.is_archived) return [button("Unarchive", "", () => act("conversations.unarchive"))];
    const bot = model.bot.user_id;
    const guest = members.includes(bot)
      ? button(`Remove ${model.bot.name}`, "danger", () => act("conversations.kick", { user: bot }))
      : button(`Invite ${model.bot.name}`, "", () => act("conversations.invite", { users: bot }));
    return [guest, button("Leave", "", () => act("conversations.leave", {}, true)), button("Archive", "danger", () => act("conversations.archive", {}, true))];
  }

  await draw().catch((error) => { body.replaceChildren(problem); problem.textContent = words(error); });
}

/** A text with a button that saves it; unsaved text stays when the rest is redrawn. */
function line(label, save) {
  const input = Object.assign(tag("input", ""), { type: "text", maxLength: 250 });
  const row = field(label, input);
  let shown = "";
  row.append(button("Save", "", () => save(input.value.trim()), `Save the ${label.toLowerCase()}`));
  row.classList.add("with-button");
  const show = (value) => {
    if (input.value === shown || input.value.trim() === value) input.value = value;
    shown = value;
  };
  return { row, show };
}
