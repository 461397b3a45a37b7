// The user that the page acts as: the owner, somebody else, or another bot, to see how the app treats each.

import { button, dialog, field, tag } from "./dom.js";
import { avatar } from "./message.js";
import { words } from "./words.js";

/** Ask whom to act as. The owner's token is kept in this tab, for switching back. */
export function choosePerson(api, model) {
  const owner = sessionStorage.getItem("owner");
  const problem = Object.assign(tag("p", "problem-line"), { role: "alert" });
  const others = [...model.users.values()].filter(({ id }) => id !== model.bot.user_id);
  const list = tag("ul", "choices", ...others.map((user) => tag("li", "", entry(user, model.me.id === user.id, () => become(user)))));
  const box = dialog("Act as", "panel", tag("div", "panel-body", tag("p", "note", "Write as somebody else to see how the app treats people it does not know, and other bots."), list, problem, ...newcomer()));

  async function become(user) {
    try {
      api.useToken(await tokenOf(user));
      location.reload();
    } catch (error) {
      problem.textContent = words(error);
    }
  }

  /** Only the owner's token gives access to another's: switching between others goes through the owner. */
  async function tokenOf(user) {
    if (model.isOwner) sessionStorage.setItem("owner", api.token);
    else if (!owner) throw new Error("not_allowed");
    return (await api.as(model.isOwner ? api.token : owner).page("become", { user: user.id })).token;
  }

  function newcomer() {
    if (!model.isOwner) return [];
    const name = Object.assign(tag("input", ""), { type: "text", maxLength: 40, required: true });
    const add = async (isBot) => {
      try {
        const { user } = await api.page("people", { name: name.value, is_bot: isBot });
        await become(user);
      } catch (error) {
        problem.textContent = words(error);
      }
    };
    const row = tag("div", "row", button("Add a person", "", () => add(false)), button("Add a bot", "", () => add(true)));
    return [tag("h3", "", "Somebody new"), field("Name", name), row];
  }

  return box;
}

function entry(user, isMe, choose) {
  const node = button(avatar(user.name, false), "choice", choose);
  node.append(tag("span", "", user.name), tag("small", "", user.is_bot ? "another bot" : "person"));
  node.setAttribute("aria-pressed", String(isMe));
  return node;
}
