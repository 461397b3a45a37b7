// The live events of the workspace. The browser reconnects by itself and says where it left off; it gives up only
// when the workspace refuses it, that is when another one, with other keys, has taken its place.

export function follow(url, { onEvent, onState, onReset }) {
  const source = new EventSource(url);
  source.onopen = () => onState("up");
  source.onerror = () => onState(source.readyState === EventSource.CLOSED ? "refused" : "lost");
  source.onmessage = ({ data }) => onEvent(JSON.parse(data));
  source.addEventListener("reset", onReset);
  return source;
}
