// The live events of the workspace. The browser reconnects by itself and says where it left off.

export function follow(url, { onEvent, onState, onReset }) {
  const source = new EventSource(url);
  source.onopen = () => onState(true);
  source.onerror = () => onState(false);
  source.onmessage = ({ data }) => onEvent(JSON.parse(data));
  source.addEventListener("reset", onReset);
  return source;
}
