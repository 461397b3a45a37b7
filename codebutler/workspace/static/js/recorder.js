// A voice message from the microphone: one press starts, the next one sends. The file names are like those of Slack's
// own clips.

import { icon } from "./dom.js";

export class Recorder {
  #recording = null;

  /** `done` gets the clip as a File, `failed` an error text. The button is hidden if recording is impossible. */
  constructor(done, failed) {
    this.done = done;
    this.failed = failed;
    this.button = Object.assign(document.createElement("button"), { type: "button", className: "tool" });
    this.button.hidden = !(navigator.mediaDevices && window.MediaRecorder);
    this.button.addEventListener("click", () => (this.#recording ? this.#recording.stop() : this.#start()));
    this.#show(false);
  }

  /** Whether it is recording. */
  get isOn() {
    return this.#recording !== null;
  }

  async #start() {
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      const pieces = [];
      this.#recording = new MediaRecorder(stream);
      this.#recording.addEventListener("dataavailable", ({ data }) => pieces.push(data));
      this.#recording.addEventListener("stop", () => this.#stopped(stream, pieces));
      this.#recording.start();
      this.#show(true);
    } catch {
      this.failed("The page cannot use the microphone: allow it in your browser.");
    }
  }

  #stopped(stream, pieces) {
    const type = this.#recording.mimeType.split(";")[0] || "audio/webm";
    stream.getTracks().forEach((track) => track.stop());
    this.#recording = null;
    this.#show(false);
    this.done(new File(pieces, `audio_message.${type.endsWith("mp4") ? "m4a" : type.split("/")[1]}`, { type }));
  }

  #show(on) {
    const label = on ? "Send the recording" : "Record a voice message";
    this.button.replaceChildren(icon(on ? "stop" : "microphone"));
    this.button.title = label;
    this.button.setAttribute("aria-label", label);
    this.button.classList.toggle("recording", on);
  }
}
