// Login: exchanges a token for a session of the page.

import { ask } from "./api.js";
import { make } from "./dom.js";
import { recall, remember } from "./remembered.js";

/** Returns a button that ends the session; null if nobody has logged in. */
export function logoutButton() {
  const logout = async () => {
    await ask("/logout", { method: "POST" }).catch(() => null);
    remember("login", null);
    location.reload();
  };
  return recall("login") ? make("button", { type: "button", onclick: logout }, "Log out") : null;
}

export class Login {
  title = "Log in";

  constructor(done) {
    this.token = make("input", {
      type: "password",
      id: "token",
      name: "token",
      autocomplete: "current-password",
      required: true,
      "aria-describedby": "login-error",
    });
    this.error = make("p", { class: "error", id: "login-error", role: "alert", hidden: true });
    const submit = async (event) => {
      event.preventDefault();
      try {
        await ask("/login", { method: "POST", body: { token: this.token.value.trim() } });
        remember("login", "yes");
        done();
      } catch (error) {
        this.error.textContent = error.words ?? String(error);
        this.error.hidden = false;
        this.token.setAttribute("aria-invalid", "true");
        this.token.select();
      }
    };
    this.element = make(
      "div",
      { class: "sheet narrow" },
      make("h1", {}, "Log in"),
      make("p", {}, "This service asks for a token."),
      make(
        "form",
        { onsubmit: submit },
        make("div", { class: "field" }, make("label", { for: "token" }, "Token"), this.token, this.error),
        make("button", { class: "primary", type: "submit" }, "Log in"),
      ),
      make(
        "p",
        { class: "soft" },
        "The operator of the service makes tokens. A token says which agents you may see, and whether you may change anything.",
      ),
    );
  }

  async enter() {
    this.token.focus();
  }

  leave() {}
}
