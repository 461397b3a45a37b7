// The live events of the workspace. The browser reconnects automatically and says where it left off; it gives up only
// if the workspace refuses it, which means that another one with other tokens has replaced it.

export function follow(url, { onEvent, onState, onReset }) {
  const source = new EventSource(url);
  source.onopen = () => onState("up");
  source.onerror = () => onState(source.readyState === EventSource.CLOSED ? "refused" : "lost");
  source.onmessage = ({ data }) => onEvent(JSON.parse(data));
  source.addEventListener("reset", onReset);
  return source;
}
