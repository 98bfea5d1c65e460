//! Rules about `[http]`: its address, who may come without a token, and names that stand there twice.

use super::super::HttpRole;
use super::Rules;
use std::collections::BTreeMap;
use std::net::SocketAddr;

impl Rules<'_> {
    pub(super) fn http(&mut self) {
        let http = &self.config().http;
        self.http_tokens();
        self.http_certificates();
        self.http_public_url();
        if !http.agent_address.is_empty() && http.agent_socket().is_none() {
            self.error(
                &[("http.agent_address", 0)],
                format!("http.agent_address: \"{}\" is no address and port", http.agent_address),
                "write \"127.0.0.1:8026\" or \"[::1]:8026\"",
            );
        }
        let http = &self.config().http;
        if http.address.is_empty() {
            return;
        }
        let Ok(address) = http.address.parse::<SocketAddr>() else {
            self.error(
                &[("http.address", 0)],
                format!("http.address: \"{}\" is no address and port", http.address),
                "write \"127.0.0.1:8025\" or \"[::1]:8025\"",
            );
            return;
        };
        let clash = self.config().listen.iter().any(|listen| address.port() != 0 && listen.address == address);
        if clash {
            self.error(
                &[("http.address", 0), ("listen.address", 0)],
                format!("http.address: a listener for mail has {address} too"),
                "take another port, such as 8025",
            );
        }
        if !address.ip().is_loopback() && http.certificate.is_empty() && !http.tokens.is_empty() {
            self.warn(
                &[("http.address", 0)],
                format!("http.address: other machines reach {address}, and tokens cross the network in clear"),
                "set http.certificate and http.key, or let it listen on 127.0.0.1 behind a proxy that ends TLS",
            );
        }
        if !http.tokens.is_empty() || !http.clients.is_empty() {
            return;
        }
        let make_token = "add [[http.token]] with name, file and role, or let it listen on 127.0.0.1";
        if !address.ip().is_loopback() && http.without_token != HttpRole::None {
            self.error(
                &[("http.address", 0)],
                format!("http.address: other machines reach {address}, and there is no [[http.token]]"),
                make_token,
            );
        }
        if !http.names.is_empty() && http.without_token != HttpRole::None {
            self.error(
                &[("http.names", 0)],
                "http.names: clients of a proxy would need no token".to_owned(),
                "add [[http.token]] with name, file and role, or set http.without_token = \"none\"",
            );
        }
        if http.without_token == HttpRole::Operate {
            self.warn(
                &[("http.without_token", 0)],
                "http.without_token: every user of this machine can change the queue".to_owned(),
                "on a machine with other users add [[http.token]]",
            );
        }
    }

    /// Certificate and key belong together, and certificates of clients need both.
    fn http_certificates(&mut self) {
        let http = &self.config().http;
        if http.certificate.len() != http.key.len() {
            let (certificates, keys) = (http.certificate.len(), http.key.len());
            self.error(
                &[("http.certificate", 0), ("http.key", 0)],
                format!("http.certificate names {certificates} and http.key {keys} files"),
                "name as many keys as certificates, in the same order",
            );
        }
        if http.certificate.is_empty() && !http.client_ca.is_empty() {
            self.error(
                &[("http.client_ca", 0)],
                "http.client_ca without http.certificate: there is no TLS that could ask for a certificate".to_owned(),
                "set http.certificate and http.key",
            );
        }
        let mut seen = BTreeMap::new();
        for (index, client) in http.clients.iter().enumerate() {
            if http.client_ca.is_empty() {
                self.error(
                    &[("http.client.name", index)],
                    format!("http.client.name: nothing vouches for \"{}\"", client.name),
                    "set http.client_ca to the CA of its certificate",
                );
            }
            if let Some(first) = seen.insert(client.name.as_str(), index) {
                let line = self.loaded.places.of("http.client.name", first).map_or(0, |place| place.line);
                self.error(
                    &[("http.client.name", index)],
                    format!("a second http.client with name \"{}\"; the first is in line {line}", client.name),
                    "keep one of them",
                );
            }
            if client.role == HttpRole::None {
                self.error(
                    &[("http.client.role", index)],
                    format!("http.client.role: client \"{}\" would have no rights", client.name),
                    "write \"view\" or \"operate\", or remove the table",
                );
            }
        }
    }

    fn http_public_url(&mut self) {
        let http = &self.config().http;
        if !http.public_url.is_empty() && http.public_name().is_none() {
            self.error(
                &[("http.public_url", 0)],
                format!("http.public_url: \"{}\" is no address of HTTP", http.public_url),
                "write \"https://mail.example.com\"",
            );
        }
        let is_name = |name: &str| http.public_name().is_some_and(|public| public.eq_ignore_ascii_case(name));
        let is_open = http.tokens.is_empty() && http.clients.is_empty() && http.without_token != HttpRole::None;
        if !http.address.is_empty() && is_open && is_name(&self.config().hostname) {
            self.error(
                &[("http.public_url", 0)],
                "http.public_url: clients that come by the name of this server would need no token".to_owned(),
                "add [[http.token]] with name, file and role, or set http.without_token = \"none\"",
            );
        }
    }

    fn http_tokens(&mut self) {
        let mut seen = BTreeMap::new();
        for (index, token) in self.config().http.tokens.iter().enumerate() {
            if let Some(first) = seen.insert(token.name.as_str(), index) {
                let line = self.loaded.places.of("http.token.name", first).map_or(0, |place| place.line);
                self.error(
                    &[("http.token.name", index)],
                    format!("a second http.token with name \"{}\"; the first is in line {line}", token.name),
                    "give it another name",
                );
            }
            if token.role == HttpRole::None {
                self.error(
                    &[("http.token.role", index)],
                    format!("http.token.role: token \"{}\" would give no rights", token.name),
                    "write \"view\" or \"operate\", or remove the table",
                );
            }
        }
    }
}
